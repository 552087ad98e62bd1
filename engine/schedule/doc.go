// Package schedule decides what runs next on one node. It does no I/O, reads no clock and starts nothing: its caller says what arrived and
// what ended, and asks what may begin.
//
//	class := s.Class(demand)       // once per function: equal demands share a queue
//	s.Push(class, &task.item, now)
//	for {
//		class, lease := s.Grant(now, haveWorker)
//		if lease == nil {
//			break
//		}
//		item := class.Pop()        // runs under the lease
//	}
//	s.Release(lease)
//
// Resources are integers in 1/10000. A [Pool] is what leases are cut from: the node itself, or one bundle of a placement group, whose
// resources were cut from the node. Classes wait in the order of their oldest item. One that does not fit is passed by, so that the node stays
// busy, until it has waited for [Patience]; from then on what it needs is kept for it.
//
// A [Lease] outlives a task: whoever holds it may go on with the next item of its class as long as [Scheduler.MayKeep] agrees.
package schedule
