// Package config reads and checks FirstTap's settings. Nothing else reads the environment.
package config
