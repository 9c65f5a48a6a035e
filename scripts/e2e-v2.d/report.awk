# Reads what scripts/e2e-v2.d/init and the tests printed, and prints a line a package, the skips with their reasons, and all that is wrong.
# Fails unless every package of the variable packages ran and passed, on cgroup v2 alone. The variable reasons has the reasons for which a
# test may skip, one a line.
function wrong(text) {
	print "WRONG  " text
	failed = 1
}
BEGIN {
	count = split(packages, wanted, " ")
	lines = split(reasons, list, "\n")
	for (i = 1; i <= lines; i++) allowed[list[i]] = 1
}
{ sub(/\r$/, "") }
/^@@ kernel / { kernel = $3; next }
/^@@ mounted / { mounted = $0; sub(/^@@ mounted /, "", mounted); sub(/ +$/, "", mounted); next }
/^@@ controllers / { controllers = $0; sub(/^@@ controllers /, "", controllers); next }
/^@@ started / {
	started = 1
	print "       Linux " kernel ", up in " $3 " s; control groups: " mounted "; controllers: " controllers
	next
}
/^@@ run / { package = $3; test = ""; ran = passed = skipped = 0; began[package] = 1; next }
/^@@ end / {
	ended[$3] = 1
	verdict = $4 == 0 ? "ok" : "FAIL"
	printf "%-6s %s\t%d s, %d tests and subtests passed, %d skipped\n", verdict, $3, $5, passed, skipped
	if ($4 != 0) wrong($3 " ended with status " $4)
	else if (passed == 0) wrong($3 " ran no test")
	next
}
/^@@ done/ { finished = 1; next }
# A line of a test comes after the one that names the test; a skip is told after its reason.
/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }
/^ *--- PASS: / { passed++; next }
/^ *--- FAIL: / { print "       failed: " $3; next }
/^ *--- SKIP: / {
	skipped++
	print "       skipped: " $3 ": " reason[$3]
	if (!(reason[$3] in allowed)) wrong($3 " of " package " may not skip here for this reason; a reason that is right goes into scripts/e2e-v2")
	next
}
# go test prints file:line: before what a test says.
/^ +[a-z0-9_]+\.go:[0-9]+: / { text = $0; sub(/^ +[a-z0-9_]+\.go:[0-9]+: /, "", text); reason[test] = text }
END {
	if (!started) wrong("the machine did not come up")
	if (mounted != "cgroup2 /sys/fs/cgroup") wrong("it is not cgroup v2 alone")
	if ((" " controllers " ") !~ / cpu / || (" " controllers " ") !~ / memory /) wrong("there is no cpu or no memory controller")
	for (i = 1; i <= count; i++) {
		if (!(wanted[i] in began)) wrong(wanted[i] " was not run")
		else if (!(wanted[i] in ended)) wrong(wanted[i] " did not end; its last test is " test)
	}
	if (!finished) wrong("the machine did not reach its end")
	exit failed
}
