(echo x > /dev/tcp/127.0.0.1/1) 2>&1 | sed 's/.*: //'
