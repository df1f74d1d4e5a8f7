try do
  raise "first"
rescue
  e -> reraise %RuntimeError{message: "again: " <> e.message}, __STACKTRACE__
end
