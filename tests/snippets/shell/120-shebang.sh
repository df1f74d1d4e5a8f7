#!/bin/sh
echo "$BASH_VERSION" | cut -c1-1
