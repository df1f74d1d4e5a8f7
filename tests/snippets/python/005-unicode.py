print("naïve café — 日本語 🎉 \u2603")
