"""What commands that run a recipe share."""
