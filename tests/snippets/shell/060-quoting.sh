echo 'single $HOME' "double $HOME" \$escaped $'tab\there'
