echo "naïve café — 日本語 🎉"
