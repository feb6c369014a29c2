//go:build !linux

package servertest

import "syscall"

// dieWithParent asks for nothing: only Linux kills a child for us when we die.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped takes the signal as delivered: there is no portable way to see it.
func stopped(int) bool { return true }
