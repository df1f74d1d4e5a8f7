IO.inspect({2 ** 100, Float.round(3.14159, 2), Integer.digits(1234), div(-7, 2), rem(-7, 2), Integer.mod(-7, 2), 0.1 + 0.2, 1.0e20, Float.ceil(1.1)})
