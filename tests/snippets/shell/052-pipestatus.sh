false | true | sh -c 'exit 3'
echo "${PIPESTATUS[@]}"
