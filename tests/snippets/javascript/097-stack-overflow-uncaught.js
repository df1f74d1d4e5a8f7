function down() { down(); }
try { down(); } catch (e) { throw new Error(e.message); }
