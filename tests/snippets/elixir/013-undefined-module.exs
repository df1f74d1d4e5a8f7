NoSuchModule.call()
