"""The command `minutewheel`: what people and scripts type."""
