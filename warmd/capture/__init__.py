"""What every request of an agent begins with, taken from its live requests and put into the prompts file."""
