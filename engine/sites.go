package engine

import (
	"strings"

	"github.com/raygo/raygo/engine/wire"
)

// sites are the places in a program where its references were made. Only processes that record them send any.
type sites struct {
	of    map[wire.OID]string
	texts map[string]string // each text once
}

// noSites is what Ray says where nothing is recorded.
const noSites = "disabled"

// noteSite is RG_SITE.
func (n *Node) noteSite(p *peer, num uint64, s wire.SiteFrame) {
	if p.sites == nil {
		p.sites = &sites{of: map[wire.OID]string{}, texts: map[string]string{}}
	}
	u := n.units[num]
	if u == nil {
		return // let go of already
	}
	text, known := p.sites.texts[string(s.Text)]
	if !known {
		text = strings.ToValidUTF8(string(s.Text), "?")
		p.sites.texts[string(s.Text)] = text
	}
	for i := range s.Count {
		oid := wire.OID{Task: num, Index: s.Index + i}
		if _, had := p.sites.of[oid]; had {
			continue // a further handle on what the process has already
		}
		if o := u.find(oid.Index); o != nil && o.HeldBy(p) {
			p.sites.of[oid] = text
		}
	}
}

// dropSite forgets a reference, but for what is still read: its bytes stay, and somebody may want to know why.
func (p *peer) dropSite(oid wire.OID) {
	if k := p.pins[oid]; k != nil {
		k.site = p.sites.of[oid]
	}
	delete(p.sites.of, oid)
}

// site says where a process made its reference.
func (p *peer) site(oid wire.OID) string {
	if p == nil || p.sites == nil {
		return noSites
	}
	if k := p.pins[oid]; k != nil && k.site != "" {
		return k.site
	}
	return p.sites.of[oid]
}
