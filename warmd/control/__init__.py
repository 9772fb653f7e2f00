"""How a person's commands reach the daemon: a unix socket in the state folder that speaks JSON lines."""
