"""What commands share: options, output, quantities and logins."""
