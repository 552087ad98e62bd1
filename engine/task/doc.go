// Package task describes tasks: what a template says about them, the states they go through, and what is remembered of those that ended.
// It holds no queue and makes no decision.
package task
