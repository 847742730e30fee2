"""What others want to be told or asked while runs work: points, decisions, commands, and the features that ask them."""
