"""What outlives a process that ends as it should not: prefixes in quarantine, and starts that failed."""
