"""Read-only HTTP endpoints: status, metrics, readiness and a page. Knows no HTTP server and no engine."""
