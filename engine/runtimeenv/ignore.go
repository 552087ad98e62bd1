package runtimeenv

import (
	"path/filepath"
	"regexp"
	"strings"
)

// ignore is a list of patterns as .gitignore has them; the last that matches decides.
type ignore struct{ rules []rule }

type rule struct {
	re      *regexp.Regexp
	negate  bool
	dirOnly bool
}

func newIgnore(lines []string) *ignore {
	g := &ignore{}
	for _, l := range lines {
		l = strings.TrimRight(l, " \t\r")
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		var r rule
		if l, r.negate = strings.CutPrefix(l, "!"); l == "" {
			continue
		}
		l, r.dirOnly = strings.CutSuffix(l, "/")
		l = strings.TrimPrefix(l, "./")
		// A pattern with a slash belongs to its folder; one without matches at any depth.
		anchored := strings.Contains(l, "/")
		l = strings.TrimPrefix(l, "/")
		re, err := regexp.Compile("^" + map[bool]string{false: "(?:.*/)?"}[anchored] + translate(l) + "$")
		if err != nil {
			continue // translate escapes what it does not know, so this is a broken character class, which matches nothing in git either
		}
		r.re = re
		g.rules = append(g.rules, r)
	}
	return g
}

// translate makes a regular expression of a glob.
func translate(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case strings.HasPrefix(glob[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(glob[i:], "**"):
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		case c == '[' && strings.IndexByte(glob[i:], ']') > 1:
			j := i + strings.IndexByte(glob[i:], ']')
			class := glob[i+1 : j]
			if rest, ok := strings.CutPrefix(class, "!"); ok {
				class = "^" + rest
			}
			b.WriteString("[" + class + "]")
			i = j
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	return b.String()
}

func (g *ignore) match(rel string, dir bool) (ignored, decided bool) {
	for i := len(g.rules) - 1; i >= 0; i-- {
		r := g.rules[i]
		if (dir || !r.dirOnly) && r.re.MatchString(rel) {
			return !r.negate, true
		}
	}
	return false, false
}

// ignored asks the rules of the nearest folder first. rules maps folders, relative to the root ".", to their patterns.
func ignored(rules map[string]*ignore, rel string, dir bool) bool {
	for at := filepath.Dir(rel); ; at = filepath.Dir(at) {
		if g := rules[at]; g != nil {
			name := rel
			if at != "." {
				name = rel[len(at)+1:]
			}
			if ignored, decided := g.match(filepath.ToSlash(name), dir); decided {
				return ignored
			}
		}
		if at == "." {
			return false
		}
	}
}
