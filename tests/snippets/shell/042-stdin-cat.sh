cat | tr a-z A-Z
