package engine

import (
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/errs"
)

type kvArg struct {
	NS        string `msgpack:"ns"`
	Key       []byte `msgpack:"key"`
	Value     []byte `msgpack:"value"`
	Prefix    any    `msgpack:"prefix"` // bool in kv.del, bytes in kv.keys
	Overwrite *bool  `msgpack:"overwrite"`
}

// kvValueMax bounds a value: larger ones belong into the object store.
const kvValueMax = 64 << 20

var kvMethods = map[string]callMethod{
	"kv.put": method(func(n *Node, p *peer, _ uint64, a kvArg) (any, error) {
		if len(a.Value) > kvValueMax {
			return nil, errs.New(errs.EINVAL, "a value of %d bytes is over the limit of %d; put it into the object store and keep the reference", len(a.Value), kvValueMax)
		}
		m := n.kv[a.NS]
		if m == nil {
			m = map[string][]byte{}
			n.kv[a.NS] = m
		}
		_, there := m[string(a.Key)]
		if !there || a.Overwrite == nil || *a.Overwrite {
			m[string(a.Key)] = a.Value
		}
		return !there, nil
	}),
	"kv.get": method(func(n *Node, p *peer, _ uint64, a kvArg) (any, error) {
		if v, there := n.kv[a.NS][string(a.Key)]; there {
			if v == nil {
				v = []byte{}
			}
			return v, nil
		}
		return nil, nil
	}),
	"kv.del": method(func(n *Node, p *peer, _ uint64, a kvArg) (any, error) {
		m := n.kv[a.NS]
		if byPrefix, _ := a.Prefix.(bool); byPrefix {
			k := 0
			for key := range m {
				if strings.HasPrefix(key, string(a.Key)) {
					delete(m, key)
					k++
				}
			}
			return k, nil
		}
		if _, there := m[string(a.Key)]; !there {
			return 0, nil
		}
		delete(m, string(a.Key))
		return 1, nil
	}),
	"kv.keys": method(func(n *Node, p *peer, _ uint64, a kvArg) (any, error) {
		prefix := ""
		switch x := a.Prefix.(type) {
		case []byte:
			prefix = string(x)
		case string:
			prefix = x
		}
		keys := []string{}
		for key := range n.kv[a.NS] {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		out := make([][]byte, len(keys))
		for i, k := range keys {
			out[i] = []byte(k)
		}
		return out, nil
	}),
	"kv.exists": method(func(n *Node, p *peer, _ uint64, a kvArg) (any, error) {
		_, there := n.kv[a.NS][string(a.Key)]
		return there, nil
	}),
}
