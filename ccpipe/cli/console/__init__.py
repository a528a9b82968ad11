"""Shared by commands: options, output, quantities and logins."""
