package placement

import (
	"cmp"
	"strings"
)

// PlatformStage returns the stage platform-versions with another order of releases, to replace the
// package's own. The package compares releases as numbers: 7.9, 7.10, 10.0.
func PlatformStage(compare func(a, b string) int) Stage {
	return Stage{
		Name: "platform-versions", Aliases: []string{"hard-filter-platform-versions"}, ByClass: true,
		Applies: func(p *Prepared) bool { return len(p.platforms) > 0 },
		Keep:    func(v *View) bool { return v.platformProblem(compare) == "" },
		Why:     func(v *View) string { return v.platformProblem(compare) },
	}
}

// compareReleases compares releases as numbers, part by part. A text that is not a release, such as
// the empty one of a server without a known release, sorts before all releases.
func compareReleases(a, b string) int {
	switch first, second := isNumbered(a), isNumbered(b); {
	case !first && !second:
		return 0
	case !first:
		return -1
	case !second:
		return 1
	}
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
			return c
		}
	}
	return 0
}

// isNumbered reports whether a text consists of numbers with points between them.
func isNumbered(text string) bool {
	for part := range strings.SplitSeq(text, ".") {
		if !isDigits(part) {
			return false
		}
	}
	return true
}

// isRelease reports whether a key of a platform table is a release: digits, a point and digits.
func isRelease(key string) bool {
	major, minor, ok := strings.Cut(key, ".")
	return ok && isDigits(major) && isDigits(minor)
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// listed is the result of looking one release up in a table from releases to platforms. Keys that
// are not releases are ignored.
type listed struct {
	below, above bool   // the release is below or above all that are listed
	exact        bool   // the release is listed
	stamp        string // oldest or newest platform of the release
}

// lookUp looks a release up in a table; ok is false if the table lists none.
func lookUp(table map[string]string, release string, compare func(a, b string) int) (l listed, ok bool) {
	l = listed{below: true, above: true}
	for _, key := range sortedKeys(table) {
		if !isRelease(key) {
			continue
		}
		ok = true
		switch c := compare(release, key); {
		case c < 0:
			l.above = false
		case c > 0:
			l.below = false
		default:
			if !l.exact || key == release { // 7.0 and 7.00 are the same release
				l.stamp = table[key]
			}
			l.below, l.above, l.exact = false, false, true
		}
	}
	return l, ok
}

// minPlatform reports whether a platform is new enough by a table of the oldest ones. A release in
// the table needs its stamp or a newer one. Another release passes unless it is below all that are
// listed.
func minPlatform(table map[string]string, release, platform string, compare func(a, b string) int) bool {
	if stamp, ok := table[""]; ok && platform < stamp {
		return false
	}
	switch l, ok := lookUp(table, release, compare); {
	case !ok:
		return true
	case l.exact:
		return platform >= l.stamp
	default:
		return !l.below
	}
}

// maxPlatform reports whether a platform is old enough, as minPlatform with the order reversed.
func maxPlatform(table map[string]string, release, platform string, compare func(a, b string) int) bool {
	if stamp, ok := table[""]; ok && platform > stamp {
		return false
	}
	switch l, ok := lookUp(table, release, compare); {
	case !ok:
		return true
	case l.exact:
		return platform <= l.stamp
	default:
		return !l.above
	}
}
