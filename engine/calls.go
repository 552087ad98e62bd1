package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// callMethod answers one CALL. errLater says that the answer comes by n.reply.
type callMethod func(n *Node, p *peer, id uint64, arg msgpack.RawMessage) (any, error)

var errLater = errors.New("answered later")

// method makes a callMethod of a function with a typed argument.
func method[A any](f func(n *Node, p *peer, id uint64, a A) (any, error)) callMethod {
	return func(n *Node, p *peer, id uint64, raw msgpack.RawMessage) (any, error) {
		var a A
		if err := msgpack.Unmarshal(raw, &a); err != nil {
			return nil, errs.New(errs.EINVAL, "the argument is not what it should be: %w", err)
		}
		return f(n, p, id, a)
	}
}

// noArgument is for methods that take nil, whatever is sent instead.
func noArgument(f func(n *Node, p *peer) (any, error)) callMethod {
	return func(n *Node, p *peer, _ uint64, _ msgpack.RawMessage) (any, error) { return f(n, p) }
}

var callMethods map[string]callMethod

func init() { // not a literal: explain and others lead back to the table
	callMethods = map[string]callMethod{
		"prefix.next":         noArgument(func(n *Node, p *peer) (any, error) { return n.nextPrefix(), nil }),
		"actor.reserve":       method(callReserve),
		"actor.unreserve":     method(callUnreserve),
		"task.is_call":        method(callIsCall),
		"actor.lookup":        method(callLookup),
		"actor.list_named":    method(callListNamed),
		"actor.pending":       method(callPending),
		"resources.total":     noArgument(func(n *Node, p *peer) (any, error) { return n.total.Floats(), nil }),
		"resources.available": noArgument(func(n *Node, p *peer) (any, error) { return n.sched.Node().Free().Floats(), nil }),
		"resources.per_node": noArgument(func(n *Node, p *peer) (any, error) {
			return map[string]any{n.nodeID(): map[string]any{"total": n.total.Floats(), "available": n.sched.Node().Free().Floats()}}, nil
		}),
		"nodes":              noArgument(callNodes),
		"pg.create":          method(callCreateGroup),
		"pg.remove":          method(callRemoveGroup),
		"pg.table":           method(callGroupTable),
		"pg.lookup":          method(callGroupLookup),
		"modules.report":     method(callModules),
		"modules.preload":    method(callPreload),
		"serve.register":     method(callRegister),
		"serve.unregister":   method(callUnregister),
		"job.info":           noArgument(callJobInfo),
		"explain":            method(callExplain),
		"objects.free":       method(callFree),
		"drain.logs":         callDrainLogs,
		"worker.stderr_tail": method(callStderrTail),
	}
	for _, more := range []map[string]callMethod{kvMethods, stateMethods, metricMethods} {
		for name, m := range more {
			callMethods[name] = m
		}
	}
}

// callFrame is RG_CALL. A method that is unknown or refuses is an answer, not the end of the connection.
func (n *Node) callFrame(p *peer, id uint64, b []byte) error {
	var req struct {
		_msgpack struct{} `msgpack:",as_array"`
		Method   string
		Arg      msgpack.RawMessage
	}
	if err := msgpack.Unmarshal(b, &req); err != nil {
		return errs.New(errs.EINVAL, "a CALL is not [method, argument]: %w", err)
	}
	m := callMethods[req.Method]
	if m == nil {
		n.reply(p, id, nil, errs.New(errs.EINVAL, "there is no method %q", req.Method))
		return nil
	}
	result, err := m(n, p, id, req.Arg)
	if err != errLater {
		if err != nil {
			err = errs.New(errs.CodeOf(err), "%s: %w", req.Method, err)
		}
		n.reply(p, id, result, err)
	}
	return nil
}

func (n *Node) reply(p *peer, id uint64, result any, err error) {
	if err != nil {
		p.send(wire.Reply, uint16(errs.CodeOf(err)), id, pack(err.Error()))
		return
	}
	p.send(wire.Reply, 0, id, pack(result))
}

type nameArg struct {
	Name      string `msgpack:"name"`
	Namespace string `msgpack:"namespace"`
	Actor     uint64 `msgpack:"actor"`
}

func (p *peer) named(a nameArg) actor.Name {
	if a.Namespace == "" {
		a.Namespace = p.job.namespace
	}
	return actor.Name{Namespace: a.Namespace, Name: a.Name}
}

func callReserve(n *Node, p *peer, _ uint64, a nameArg) (any, error) {
	if a.Name == "" || a.Actor == 0 {
		return nil, errs.New(errs.EINVAL, "a name and an actor's number are needed")
	}
	name := p.named(a)
	owner, ok := n.actorNames.Take(name, a.Actor)
	if ok && n.actors[a.Actor] == nil {
		n.reserved[name] = reservation{a.Actor, p}
	}
	return map[string]any{"actor": owner, "exists": !ok}, nil
}

// callUnreserve frees a name whose actor could not be submitted.
func callUnreserve(n *Node, p *peer, _ uint64, a nameArg) (any, error) {
	name := p.named(a)
	if n.reserved[name] == (reservation{a.Actor, p}) {
		n.actorNames.Free(name, a.Actor)
		delete(n.reserved, name)
	}
	return nil, nil
}

// callIsCall says whether a task that has not ended is an actor's.
func callIsCall(n *Node, p *peer, _ uint64, a struct {
	Task uint64 `msgpack:"task"`
}) (any, error) {
	u := n.units[a.Task]
	return u != nil && u.task != nil && u.task.flags&wire.FlagActorCall != 0, nil
}

func callLookup(n *Node, p *peer, _ uint64, a nameArg) (any, error) {
	num := a.Actor
	if num == 0 {
		name := p.named(a)
		if num = n.actorNames.Find(name); num == 0 {
			return nil, errs.New(errs.ENOTFOUND, "no actor is called %q in namespace %q; it was never created there, or is dead", name.Name, name.Namespace)
		}
	}
	found := n.actors[num]
	if found == nil {
		return nil, errs.New(errs.ENOTFOUND, "there is no actor %s", n.actorHex(num, p.job))
	}
	if found.handle == nil && found.detached && found.State != actor.Dead {
		// The last handle was dropped and the actor lives on: the one that is about to be made needs its object again.
		u := n.units[num]
		if u == nil {
			u = found.creation.u
			n.units[num] = u
		}
		u.first = object{u: u, state: inline, data: noneBlob, size: uint64(len(noneBlob))}
		u.live++
		found.handle = &u.first
	}
	if found.handle != nil {
		n.hold(found.handle, p) // the answer is as good as a reference; the process says RELEASE when it drops it
	}
	return map[string]any{
		"actor": num, "meta": found.t.Meta, "name": found.name.Name, "namespace": found.name.Namespace, "state": found.State.String(), "job": found.job.number(),
	}, nil
}

func callListNamed(n *Node, p *peer, _ uint64, a nameArg) (any, error) {
	out := []map[string]any{}
	for name, num := range n.actorNames.All {
		if (a.Namespace == "" || a.Namespace == name.Namespace) && n.actors[num] != nil {
			out = append(out, map[string]any{"name": name.Name, "namespace": name.Namespace})
		}
	}
	return out, nil
}

func callPending(n *Node, p *peer, _ uint64, a nameArg) (any, error) {
	if found := n.actors[a.Actor]; found != nil {
		return found.Unfinished(), nil
	}
	return 0, nil
}

func callNodes(n *Node, p *peer) (any, error) {
	host := hostname()
	return []map[string]any{{
		"NodeID": n.nodeID(), "Alive": true, "alive": true, "NodeManagerAddress": n.opts.NodeIP, "NodeManagerHostname": host, "NodeManagerPort": 0, "ObjectManagerPort": 0,
		"ObjectStoreSocketName": n.Socket(), "RayletSocketName": n.Socket(), "MetricsExportPort": 0, "NodeName": n.opts.NodeIP, "RuntimeEnvAgentPort": 0,
		"DeathReason": 0, "DeathReasonMessage": "", "Resources": n.total.Floats(), "Labels": n.sched.Labels,
	}}, nil
}

type groupArg struct {
	PG       uint64               `msgpack:"pg"`
	Bundles  []schedule.Resources `msgpack:"bundles"`
	Strategy string               `msgpack:"strategy"`
	Name     string               `msgpack:"name"`
	Detached bool                 `msgpack:"detached"`
}

func callCreateGroup(n *Node, p *peer, _ uint64, a groupArg) (any, error) {
	return nil, n.createGroup(p, a.PG, a.Bundles, a.Strategy, a.Name, a.Detached)
}

func callRemoveGroup(n *Node, p *peer, _ uint64, a groupArg) (any, error) {
	g := n.sched.Group(a.PG)
	if g == nil {
		return nil, errs.New(errs.ENOTFOUND, "there is no placement group %x", a.PG)
	}
	n.removeGroup(g)
	return nil, nil
}

func callGroupTable(n *Node, p *peer, _ uint64, a groupArg) (any, error) {
	out := []map[string]any{}
	for _, g := range n.sched.Groups() {
		if a.PG != 0 && g.ID != a.PG {
			continue
		}
		d := groupOf(g)
		bundles, nodes := []any{}, []string{}
		for _, b := range g.Bundles {
			bundles = append(bundles, b.Floats())
			at := ""
			if g.State == schedule.Placed {
				at = n.nodeID()
			}
			nodes = append(nodes, at)
		}
		id := ids.PG(g.ID, n.incarnation, d.job.number())
		out = append(out, map[string]any{
			"pg": g.ID, "id": ids.Hex(id[:]), "name": d.name, "state": g.State.String(), "strategy": g.Strategy, "bundles": bundles, "bundle_nodes": nodes,
			"job": d.job.number(), "detached": d.detached, "infeasible": g.Infeasible(),
		})
	}
	return out, nil
}

func callGroupLookup(n *Node, p *peer, _ uint64, a groupArg) (any, error) {
	if num := n.pgNames[a.Name]; num != 0 {
		return num, nil
	}
	return nil, errs.New(errs.ENOTFOUND, "no placement group is called %q", a.Name)
}

type serveArg struct {
	Name        string `msgpack:"name"`
	Concurrency int    `msgpack:"concurrency"`
}

func callRegister(n *Node, p *peer, _ uint64, a serveArg) (any, error) {
	return nil, n.register(p, a.Name, a.Concurrency)
}

func callUnregister(n *Node, p *peer, _ uint64, a serveArg) (any, error) {
	n.unregister(p, a.Name)
	return nil, nil
}

func callJobInfo(n *Node, p *peer) (any, error) {
	j := p.job
	hex := ids.Job(j.num)
	return map[string]any{
		"job": j.num, "job_id": ids.Hex(hex[:]), "namespace": j.namespace, "name": j.name, "runtime_env": j.hello.RuntimeEnv, "pid": j.hello.PID, "entrypoint": j.hello.MainPath,
		"start_time_ms": j.startedAt.UnixMilli(),
	}, nil
}

// callDrainLogs answers when all that workers have written so far has become LOG frames.
func callDrainLogs(n *Node, p *peer, id uint64, _ msgpack.RawMessage) (any, error) {
	var templates []Template
	for _, e := range n.envs {
		for _, t := range append(slices.Clone(e.templates), e.template) {
			if t != nil {
				templates = append(templates, t)
			}
		}
	}
	n.wg.Go(func() {
		defer n.guard()
		for _, t := range templates {
			t.DrainOutput(0)
		}
		n.strand.post(func() {
			p.send(wire.Log, 0, 0, pack(logMap{Kind: "drained"}))
			n.reply(p, id, nil, nil)
		})
	})
	return nil, errLater
}

func callStderrTail(n *Node, p *peer, id uint64, a struct {
	Worker uint64 `msgpack:"worker"`
	PID    int    `msgpack:"pid"`
}) (any, error) {
	for _, w := range n.workers {
		if w.num == a.Worker || (a.PID != 0 && w.pid == a.PID) {
			n.wg.Go(func() { // it may have to wait for output
				defer n.guard()
				tail := w.template.StderrTail(w.num)
				n.strand.post(func() { n.reply(p, id, tail, nil) })
			})
			return nil, errLater
		}
	}
	return nil, errs.New(errs.ENOTFOUND, "there is no worker %d with pid %d", a.Worker, a.PID)
}

// objectsArg names objects in an argument.
type objectsArg struct {
	Objects [][]uint64 `msgpack:"objects"`
}

func (a objectsArg) oids() (oids []wire.OID, err error) {
	for _, o := range a.Objects {
		if len(o) != 2 {
			return nil, errs.New(errs.EINVAL, "an object is [task, index], not %v", o)
		}
		oids = append(oids, wire.OID{Task: o[0], Index: uint32(o[1])})
	}
	return oids, nil
}

func callExplain(n *Node, p *peer, _ uint64, a objectsArg) (any, error) {
	oids, err := a.oids()
	if err != nil {
		return nil, err
	}
	return n.explain(oids), nil
}

// callFree takes values away from those that hold them. What is not there yet, and actors' handles, stay.
func callFree(n *Node, p *peer, _ uint64, a objectsArg) (any, error) {
	oids, err := a.oids()
	if err != nil {
		return nil, err
	}
	for _, oid := range oids {
		if o := n.find(oid); o != nil && o.state != sysErr && n.actors[oid.Task] == nil && n.sched.Group(oid.Task) == nil {
			n.lose(o, &sysError{Code: errs.EOBJECTFREED, Message: fmt.Sprintf("%s was freed by hand (internal.free) while references to it were left", n.objectText(o))})
		}
	}
	return nil, nil
}
