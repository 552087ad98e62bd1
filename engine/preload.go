package engine

import "time"

type modulesArg struct {
	Modules []string `msgpack:"modules"`
}

// callModules is how workers tell which heavy modules their tasks have imported.
func callModules(n *Node, p *peer, _ uint64, a modulesArg) (any, error) {
	if p.worker == nil || p.worker.env == nil {
		return nil, nil
	}
	e := p.worker.env
	if e.learn(a.Modules) && e.state == envReady && !e.relaunching && !n.stopping && !e.retired {
		e.relaunching = true
		// Modules come in groups (torch and what it imports): wait for the rest.
		n.after(relaunchAfter, func() {
			e.relaunching = false
			if e.state == envReady && e.err == nil && !n.stopping && !e.retired {
				n.launch(e, e.built)
			}
		})
	}
	return nil, nil
}

// relaunchAfter is how long the engine waits for further modules before it starts a template with them.
const relaunchAfter = 2 * time.Second

// callPreload has the workers of a job's own environment forked from a template with these modules from now on. The answer comes when that template is
// there, or when it turns out that there will be none: then workers import for themselves.
func callPreload(n *Node, p *peer, id uint64, a modulesArg) (any, error) {
	if p.job == nil {
		return nil, nil
	}
	e := p.job.env
	if e.err != nil || e.retired || n.stopping || !e.learn(a.Modules) {
		return nil, nil
	}
	e.preloads = append(e.preloads, func() { n.reply(p, id, nil, nil) })
	switch e.state {
	case envReady:
		n.launch(e, e.built)
	case envStarting:
		e.again = true // the one that is starting has not heard of these modules
	case envNew:
		n.startEnv(e)
	}
	return nil, errLater
}

// learn notes modules that the job's next template is to import. The present workers go on with what they have.
func (e *env) learn(modules []string) (fresh bool) {
	for _, m := range modules {
		fresh = fresh || !e.job.preload[m]
		e.job.preload[m] = true
	}
	return fresh
}

// preloaded answers those who waited for a template.
func (e *env) preloaded() {
	waiting := e.preloads
	e.preloads = nil
	for _, answer := range waiting {
		answer()
	}
}

// replaceIdle ends idle processes of earlier templates, which lack what the present one has imported, and has as many made anew.
func (n *Node) replaceIdle(e *env) {
	for i := len(e.idle) - 1; i >= 0; i-- {
		if w := e.idle[i]; w.template != e.template {
			n.dismiss(w)
			e.toFork++
		}
	}
}
