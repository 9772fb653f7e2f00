"""`warmd bench`: what warming is worth with a user's own model and prompts."""
