// Package app is the composition root: it makes the parts of FirstTap from the settings, connects them, runs the command
// that was asked for, and ends the parts in their order.
package app
