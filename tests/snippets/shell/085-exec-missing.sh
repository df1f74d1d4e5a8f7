exec /no/such/program
