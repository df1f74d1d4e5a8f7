IO.inspect(Enum.to_list(1..100), limit: 5, label: "list")
IO.inspect(%{a: %{b: %{c: 1}}}, pretty: true, width: 10)
IO.inspect("é", binaries: :as_binaries)
