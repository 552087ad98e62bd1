package engine

import (
	"crypto/sha256"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// template is a function or class with its options, known to all peers by one number.
type template struct {
	*task.Template
	num        uint32
	raw        []byte // as it came: executors get the same
	job        *job
	env        *env
	class      *schedule.Class // nil for methods and named functions: they are not placed
	blobObject *object
	mean       schedule.Mean // of its run times
	group      uint64
}

// templateKey makes templates of one job with the same content the same.
type templateKey struct {
	job uint32
	sum [sha256.Size]byte
}

// defineTemplate takes a template in under the number that its sender chose.
func (n *Node) defineTemplate(p *peer, number uint64, raw []byte) error {
	key := templateKey{p.job.num, sha256.Sum256(raw)}
	t := n.templateKeys[key]
	if t == nil {
		parsed, err := task.ParseTemplate(raw)
		if err != nil {
			return err
		}
		t = &template{Template: parsed, raw: append([]byte(nil), raw...), job: p.job, num: uint32(len(n.templates) + 1)}
		if b := parsed.BlobObject; len(b) == 2 {
			if t.blobObject = n.find(wire.OID{Task: b[0], Index: uint32(b[1])}); t.blobObject == nil {
				return errs.New(errs.EREFFREED, "template %q: the object with its code was already freed", parsed.Name)
			}
			n.need(t.blobObject)
		}
		if parsed.Kind == task.Function || parsed.Kind == task.Actor {
			spec := parsed.RuntimeEnv
			if spec == "" {
				spec = p.runtimeEnv()
			}
			t.env = n.envFor(p.job, spec)
			d := parsed.Demand(t.env.id)
			t.class, t.group = n.sched.Class(d), d.Group
			t.class.Data = t.env
		}
		n.templates = append(n.templates, t)
		n.templateKeys[key] = t
	}
	if number < uint64(len(p.recent)) {
		p.recent[number] = t
		return nil
	}
	if p.templates == nil {
		p.templates = map[uint64]*template{}
	}
	p.templates[number] = t
	return nil
}

// runtimeEnv is what a process's tasks run in unless they say otherwise: what it runs in itself.
func (p *peer) runtimeEnv() string {
	if p.worker != nil && p.worker.env != nil {
		return p.worker.env.spec
	}
	return p.job.hello.RuntimeEnv
}

func (p *peer) template(number uint32) *template {
	if number < uint32(len(p.recent)) {
		return p.recent[number]
	}
	return p.templates[uint64(number)]
}

// knows says whether a worker has the template; from now on it has.
func (w *worker) learn(t *template) (knew bool) {
	i, bit := t.num/64, uint64(1)<<(t.num%64)
	for uint32(len(w.known)) <= i {
		w.known = append(w.known, 0)
	}
	knew = w.known[i]&bit != 0
	w.known[i] |= bit
	return knew
}
