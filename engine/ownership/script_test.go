package ownership

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scripts in testdata lead to into them")

// parse reads an action as text writes it.
func (c *config) parse(line string) (a action, err error) {
	words := strings.Fields(line)
	v := slices.Index(verbs[:], words[0])
	if v < 0 {
		return a, fmt.Errorf("%q: there is no verb %s", line, words[0])
	}
	a.verb = verb(v)
	nodes := []*int8{&a.a, &a.b, &a.c}
	for _, word := range words[1:] {
		if i := strings.Index(names, word); len(word) == 1 && i >= 0 && len(nodes) > 0 {
			*nodes[0] = int8(i)
			nodes = nodes[1:]
			continue
		}
		if o := slices.IndexFunc(c.things, func(t thing) bool { return t.name == word }); o >= 0 {
			a.objects |= 1 << o
			continue
		}
		if _, err := fmt.Sscanf(word, "t%d", &a.lease); err != nil {
			return a, fmt.Errorf("%q: what is %s?", line, word)
		}
	}
	return a, nil
}

// header reads the lines that describe a configuration.
func (c *config) header(line string) (bool, error) {
	words := strings.Fields(line)
	switch words[0] {
	case "nodes":
		_, err := fmt.Sscanf(words[1], "%d", &c.nodes)
		return true, err
	case "object": // object v of A [holds x] [made by task|generator]
		t := thing{name: words[1], owner: strings.Index(names, words[3]), holds: -1}
		for i := 4; i+1 < len(words); i++ {
			switch words[i] {
			case "holds":
				t.holds = slices.IndexFunc(c.things, func(t thing) bool { return t.name == words[i+1] })
			case "by":
				t.task, t.item = words[i+1] == "task", words[i+1] == "generator"
			}
		}
		c.things = append(c.things, t)
		return true, nil
	}
	return false, nil
}

func (c *config) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes %d\n", c.nodes)
	for _, t := range c.things {
		fmt.Fprintf(&b, "object %s of %s", t.name, nodeName(t.owner))
		if t.holds >= 0 {
			b.WriteString(" holds " + c.things[t.holds].name)
		}
		switch {
		case t.task:
			b.WriteString(" made by task")
		case t.item:
			b.WriteString(" made by generator")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// show writes a node's table.
func (w *world) show(i int) {
	for o, t := range w.c.things {
		e := w.site[i].n.entries[w.c.id(o)]
		if e == nil {
			continue
		}
		line := fmt.Sprintf("%s: handles %d", t.name, e.handles)
		for _, c := range e.counts {
			line += fmt.Sprintf(", count[%s] %d", nodeName(index(c.node)), c.n)
		}
		for _, p := range e.pins {
			line += fmt.Sprintf(", pins[%s] %d", nodeName(index(p.node)), p.n)
		}
		for _, p := range e.owed {
			line += fmt.Sprintf(", owes %s %d", nodeName(index(p.node)), p.n)
		}
		if e.received > 0 {
			line += fmt.Sprintf(", received %d", e.received)
		}
		for _, f := range []struct {
			is   bool
			text string
		}{{e.adding, ", adding"}, {e.lost, ", lost"}, {w.site[i].copy[o], ", value here"}} {
			if f.is {
				line += f.text
			}
		}
		w.logf("%s", line)
	}
}

// play runs a script and returns it with what it leads to, indented under each line.
func (c *config) play(script string) (string, *world, error) {
	var out strings.Builder
	var w *world
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if is, err := c.header(line); is || err != nil {
			if err != nil {
				return "", nil, err
			}
			continue
		}
		if w == nil {
			w = newWorld(c)
		}
		var log []string
		w.log = &log
		if at, is := strings.CutPrefix(line, "show "); is {
			w.show(strings.Index(names, at))
		} else {
			a, err := c.parse(line)
			if err != nil {
				return "", nil, err
			}
			if w, err = w.apply(a); err == nil {
				err = w.check()
			}
			if err != nil {
				log = append(log, "wrong: "+err.Error())
			}
		}
		for _, l := range log {
			out.WriteString("\t" + l + "\n")
		}
	}
	return out.String(), w, nil
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s says otherwise; this happened:\n%s", path, got)
	}
}

func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, last, err := (&config{}).play(string(script))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got, "wrong: ") {
				t.Errorf("something went wrong:\n%s", got)
			}
			for i, s := range last.site {
				if s != nil && len(s.n.entries)+len(s.n.lent)+len(s.n.taken) > 0 || len(last.words[i]) > 0 || slices.ContainsFunc(last.link[i][:], func(p []packet) bool { return len(p) > 0 }) {
					t.Errorf("not all is over at %s", nodeName(i))
				}
			}
			golden(t, path, got)
		})
	}
}
