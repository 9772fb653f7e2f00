"""The Mac service: the LaunchAgent's file, launchctl, and what is done with both. Imports no engine."""
