package engine

import (
	"strings"
	"unique"

	"github.com/raygo/raygo/engine/wire"
)

// sites are the places in a program where its references were made. Only processes that record them send any.
type sites map[wire.OID]unique.Handle[string]

// noSites is what Ray says where nothing is recorded.
const noSites = "disabled"

// noteSite is RG_SITE.
func (n *Node) noteSite(p *peer, num uint64, s wire.SiteFrame) {
	if p.sites == nil {
		p.sites = sites{}
	}
	u := n.units[num]
	if u == nil {
		return // let go of already
	}
	text := unique.Make(strings.ToValidUTF8(string(s.Text), "?")) // many references come from one place
	for i := range s.Count {
		oid := wire.OID{Task: num, Index: s.Index + i}
		if _, had := p.sites[oid]; had {
			continue // a further handle on what the process has already
		}
		if o := u.find(oid.Index); o != nil && o.HeldBy(p) {
			p.sites[oid] = text
		}
	}
}

// dropSite forgets a reference, but for what is still read: its bytes stay, and somebody may want to know why.
func (p *peer) dropSite(oid wire.OID) {
	text, known := p.sites[oid]
	if k := p.pins[oid]; k != nil && known {
		k.site = text.Value()
	}
	delete(p.sites, oid)
}

// site says where a process made its reference.
func (p *peer) site(oid wire.OID) string {
	if p == nil || p.sites == nil {
		return noSites
	}
	if k := p.pins[oid]; k != nil && k.site != "" {
		return k.site
	}
	if text, known := p.sites[oid]; known {
		return text.Value()
	}
	return ""
}
