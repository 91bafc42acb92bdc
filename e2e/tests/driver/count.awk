# Reads the output of `go test -v`, repeats what failed, and ends with the number of cases per version of the driver; with status 1 where there was none.
/^ *--- (PASS|FAIL|SKIP): / {
	split($3, path, "/")
	if (path[2] ~ /^[0-9]+\.[0-9]+/ && $2 == "PASS:") cases[path[2]]++
}
/^(ok|FAIL|---|    --- FAIL|        --- FAIL)/ || /_test\.go:[0-9]+:/ { print }
END {
	for (version in cases) { printf "driver %s: %d cases\n", version, cases[version]; found = 1 }
	if (!found) { print "no case ran"; exit 1 }
}
