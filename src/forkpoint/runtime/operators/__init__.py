"""What each kind of operator does with an epoch's elements."""
