Enum.no_such_function([1])
