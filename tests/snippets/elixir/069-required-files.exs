IO.inspect(Code.required_files())
File.write!("/workspace/helper.exs", "defmodule Helper do\n  def twice(x), do: 2 * x\nend\n")
Code.require_file("helper.exs")
IO.inspect({Helper.twice(4), Code.required_files()})
