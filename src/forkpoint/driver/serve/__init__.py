"""What a driver answers to requests, and says of itself."""
