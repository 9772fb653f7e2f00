"""End-to-end tests: a real `warmd serve` process, a real tiny model, real HTTP."""
