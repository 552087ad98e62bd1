// Package collective lets processes reduce, gather and exchange arrays. It gives Go the C core (collective.h), which Python's binding and the C ABI contain too.
//
// A [Group] has ranks; each makes it with the same name and size and a number of its own, and they find each other through a [Store]. Ranks of one node
// meet in shared memory: nothing is copied through the kernel. collective.h says what the calls mean and what fails how; core.h, how ranks keep in step.
//
// Package tcp, beside this one, carries groups between nodes. It is no part of this package, so that who stays on one node links neither it nor crypto/tls.
package collective
