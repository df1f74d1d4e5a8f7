defmodule Failure do
  defexception [:code, message: "failed"]
end
raise Failure, code: 7, message: "failed with 7"
