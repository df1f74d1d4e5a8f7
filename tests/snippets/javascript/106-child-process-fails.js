require("child_process").execSync("exit 5", { stdio: "ignore" });
