echo ~ ~/x
