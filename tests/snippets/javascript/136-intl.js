console.log((1234567.891).toLocaleString("en-US"), new Intl.NumberFormat("de-DE").format(1234.5), ["b", "ä", "a"].sort(new Intl.Collator("de").compare));
