throw { code: 3, text: "an object" };
