"""What applications are written with: tasks, workflows, schedules, and the document made of them."""
